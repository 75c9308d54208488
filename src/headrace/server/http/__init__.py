"""The HTTP face: RFD 5's change feed API. It parses, calls one use case of the service, and renders; nothing else.

In: HTTP requests. Out: documents, stored frames, problem documents (RFC 9457). No middleware: thousands of long polls wait.
"""
