"""Texts by which programs recognise how an elastic job has ended. hvdrun prints them too."""

RESET_LIMIT_EXCEEDED_MESSAGE = "Horovod was shutdown because number of resets during elastic job exceeded limit: {}"
