# SPDX-License-Identifier: MIT
"""Measured choices of algorithms: tuning of products, the database that stores them, and the recorder of shapes."""

from rocpy._messages.keywords import suggest_keywords_in
from rocpy._signatures import public_names
from rocpy.blaslt.model.tuning_report import Trial, TuningReport
from rocpy.tuning._exchange import export_hipblaslt, export_json, export_tunableop, import_json
from rocpy.tuning._keys import problem_key, scope
from rocpy.tuning._switches import Shapes, disable, enable, record
from rocpy.tuning.database import Database, Record, current

__all__ = [
    "Database",
    "Record",
    "Shapes",
    "Trial",
    "TuningReport",
    "current",
    "disable",
    "enable",
    "export_hipblaslt",
    "export_json",
    "export_tunableop",
    "import_json",
    "problem_key",
    "record",
    "scope",
]

suggest_keywords_in(globals(), __all__)
__dir__ = public_names(globals())
