"""A captured feed to Kafka, as TiCDC's Simple Protocol.

In: a feed of Simple messages, read by ``source``. Out: topics with JSON or Avro messages, placed by TiCDC's dispatch rules.

::

    sink, client         what the sink URI and the changefeed file say; how Kafka's client is set up. Pure
    routing, schemas     on workers: entry -> topic, partition, bytes. avro: values of JSON -> those of Avro
    steps, announcing    pure: in which order a batch goes out; when a table's schema does
    brokers, topics      on the driver: the cluster, its topics, the messages that are no rows
    beginning, watching  where a job begins; what cuts a write off that can't arrive
    batches, job         one micro-batch; the query
"""
