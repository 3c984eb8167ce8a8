"""Makes the decoder of a format, on an executor.

The formats know nothing of their decoders: the driver has formats alone, and loads neither numpy
nor pyarrow for them.
"""

from quorate.spark.typed.avro_format import AvroFormat
from quorate.spark.typed.avro_values import AvroValues
from quorate.spark.typed.json_format import JsonFormat
from quorate.spark.typed.json_values import JsonValues
from quorate.spark.typed.protobuf_format import ProtobufFormat
from quorate.spark.typed.protobuf_values import ProtobufValues
from quorate.spark.typed.text_format import TextFormat
from quorate.spark.typed.text_values import TextValues
from quorate.spark.typed.value_formats import ValueDecoder, ValueFormat


def decoder_of(about: ValueFormat) -> ValueDecoder:
    """Return a new decoder for the values of one task."""
    match about:
        case AvroFormat():
            return AvroValues(about)
        case JsonFormat():
            return JsonValues(about)
        case ProtobufFormat():
            return ProtobufValues(about)
        case TextFormat():
            return TextValues()
    raise AssertionError(f"no decoder of {type(about).__name__}")
