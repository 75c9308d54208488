"""Everything on Spark: the feed as a data source, and Delta tables kept up to date from it.

In: a server's stored frames, over HTTP. Out: data frames, and a folder of Delta tables with what was published of them.
The only room that imports pyspark and delta. Every function takes a SparkSession; nothing collects data on the driver.

::

    jars, java, session      set-up: what a session needs, found or fetched once, never at a job's start
    source/                  spark.read / readStream.format("headrace"), over ``connection``
    tables/                  one Delta table per source table
    kafka/                   a captured feed to Kafka, as TiCDC's Simple Protocol
    sink/                    writeStream.format("headrace"): a query's batches as appends, each there once
    supervision              a query that is started again after what passes, and ended by what does not
    checkpoint               what a query's checkpoint holds, and its way to another place; without Spark
    audit/                   are the tables what the feed says
    failures                 what a query failed with, as one of our errors
"""
