from .fixture import hub as hub
