"""Options that the commands of ``headrace capture`` share."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative=())]
Patterns = Annotated[list[str] | None, Parameter(negative=())]
