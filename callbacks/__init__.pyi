# One line a callback. Everything here is imported on first use.
from .delta_diagnostics import DeltaDiagnostics as DeltaDiagnostics
from .delta_keys import DeltaKeyCapture as DeltaKeyCapture
from .figures import FigureSaver as FigureSaver
from .metrics import MetricsRecord as MetricsRecord
from .predictions import PredictionWriter as PredictionWriter
from .push import PushToHub as PushToHub
