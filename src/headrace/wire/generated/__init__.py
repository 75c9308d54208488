"""Protobuf code made from ``wire/proto`` by ``make generate``; never edited by hand."""
