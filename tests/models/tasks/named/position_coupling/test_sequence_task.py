"""Text that is no sequence of a task is refused, with what is wrong."""

import pytest

from models.errors import UserError
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition as Addition
from models.tasks.named.position_coupling.multiplication import Multiplication as Product
from models.tasks.named.position_coupling.parity import Parity
from models.tasks.named.position_coupling.sequence_task import SequenceTask


@pytest.mark.parametrize(
    ("task", "text", "complaint"),
    [
        (
            Addition,
            "$1x2=3",
            "Character 3 of '$1x2=3', 'x', is not a token; tokens are 0 1 2 3 4 5 6 7 8 9 + = > $",
        ),
        (Addition, "1+2=3", "starts with $"),
        (Addition, "", "starts with $"),
        (Addition, "$1+2=3$4", "Only filling may follow the $"),
        (Addition, "$1+2", "has no '='"),
        (Addition, "$1+=3", "An operand is missing"),
        (Addition, "$=3", "An operand is missing"),
        (Addition, "$1+2=3=4", "What follows '=' in '$1+2=3=4' does not begin a response"),
        (Addition, "$1+2=0>>3", "does not begin a response"),
        (Addition, "$1+2=>0", "does not begin a response"),
        (Product, "$3*=", "An operand is missing"),
        (Product, "$3+2=", "The query of '$3+2=' is not one of multiplication"),
        (Product, "$3*2=60>60", "does not begin a response"),
        (Product, "$3*2=60=60+1", "does not begin a response"),
        (Parity, "$0121=", "Character 4 of '$0121=', '2', is not a token; tokens are 0 1 = $"),
        (Parity, "$01=0=1", "does not begin a response"),
    ],
)
def test_what_is_not_a_sequence_is_refused_with_a_reason(task: type[SequenceTask], text: str, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        task().tokenise(text)
    assert complaint in str(error.value)
