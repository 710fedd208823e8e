# The compiled survey is called as the twin is.
from gapless.delivery.survey import twin

class Survey(twin.Survey): ...
