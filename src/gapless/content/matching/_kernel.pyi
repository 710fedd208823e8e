# The compiled engine is called as the twin is.
from gapless.content.matching import fallback as twin

class Engine(twin.Engine): ...
