"""Services that processes of several jobs call."""
