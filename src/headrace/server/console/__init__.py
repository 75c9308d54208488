"""The web console at ``/console``: pages for people over the service's use cases. Requests in, HTML out.

It decides nothing: what a page shows is what the API answers to the same token. ``table.py`` lists the pages, ``face.py``
dispatches, ``sessions.py`` says who asks, ``forgery.py`` what a browser may be made to send.
"""
