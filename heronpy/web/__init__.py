"""What the Tracker and the API server have in common: whom they answer, their docs page, their process."""

from heronpy.web._docs import docs_page
from heronpy.web._host_allowed import HostAllowed, header, host_of
from heronpy.web._serve import listen, serve

__all__ = ["HostAllowed", "docs_page", "header", "host_of", "listen", "serve"]
