# The compiled engine is called as the fallback is.
from gapless.content.matching import fallback

class Engine(fallback.Engine): ...
