"""Text in, token ids out, and back: the tokenizer, the chat template and the decoding of a stream.

The engine knows token ids only. Everything here works from the files of the bundle's tokenizer/ folder:

    tokenizer.json        read by the tokenizers library
    tokenizer_info.json   special tokens, whether a text begins with BOS, the ids that end an answer
    chat_template.jinja   how messages become one prompt text; absent where the model has none

All of it came with a model from elsewhere, so it is data: the template runs in a sandbox, and what does not
parse is an IntegrityError.
"""

from runtime.text.stop import StopStrings
from runtime.text.stream import StreamDecoder
from runtime.text.template import ChatTemplate, Message
from runtime.text.tokenizer import Tokenizer, has_tokenizer

__all__ = ["ChatTemplate", "Message", "StopStrings", "StreamDecoder", "Tokenizer", "has_tokenizer"]
