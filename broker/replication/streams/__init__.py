"""The streams over which followers fetch: their messages, their frames, and the leader's listener.

``fetch_messages`` has what a frame says. Two codecs write it: ``packed_codec`` for the framed
streams between brokers, and ``protobuf_codec`` for gRPC, which serves peers of older releases and
networks that let nothing else through.
"""
