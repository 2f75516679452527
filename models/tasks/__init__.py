"""Tasks: tokens, problems, roles and the symbolic algorithms that are the ground truth of arithmetic."""

from models.tasks.addition import TenDigitAddition
from models.tasks.base import Role, Task

__all__ = ["Role", "Task", "TenDigitAddition"]
