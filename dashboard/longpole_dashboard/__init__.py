"""The dashboard: pages that draw what the analytics return, and the commands around them.

``data`` is the only module that touches a store; ``model`` holds pure functions from filters and
a reader to what a page shows; ``pages`` hold layout only.
"""

__all__: list[str] = []
