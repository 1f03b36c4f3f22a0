# One line a callback. Everything here is imported on first use.
from .figures import FigureSaver as FigureSaver
from .metrics import MetricsRecord as MetricsRecord
from .predictions import PredictionWriter as PredictionWriter
from .push import PushToHub as PushToHub
