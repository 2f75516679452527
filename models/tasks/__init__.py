"""Tasks: tokens, problems, roles and the symbolic algorithms that are the ground truth of arithmetic."""

from models.tasks.addition import TenDigitAddition
from models.tasks.base import Role, Task
from models.tasks.multi_addition import AdditionFormat, MultiOperandAddition

__all__ = ["AdditionFormat", "MultiOperandAddition", "Role", "Task", "TenDigitAddition"]
