"""A shorter search of alignments, as in the tests of the library's."""

from tests.interp.compare.conftest import few_starts as few_starts
