# SPDX-License-Identifier: MIT
# Types of the functions that suggest keywords; keywords.pyx has the documentation.
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

_Callable = TypeVar("_Callable", bound=Callable[..., Any])

def suggest_keywords(function: _Callable, /) -> _Callable: ...
def suggest_keywords_in(namespace: Mapping[str, Any], names: Iterable[str], /) -> None: ...
