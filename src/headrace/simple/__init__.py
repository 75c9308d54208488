"""The Simple Protocol: messages as values, their JSON and Avro forms, MySQL types, and the rules of its consumers. Pure.

In: values, or the bytes of one message. Out: the other of the two, typed rows, Arrow columns. Nothing here does I/O or reads
a clock; time comes in as an argument.
"""
