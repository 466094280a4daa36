"""Numbers that are no tokens in `accepted` and `next_token`, by which a target's graph speaks to the loop.

They are part of the bundle's format: a change of their meaning is a new `FORMAT_VERSION`. Neither is ever a draft, so
the acceptance of drafts ends where one stands.
"""

from __future__ import annotations

# Behind a request's last token
NOTHING = -1
# In place of the token of the first reached row whose logits are not all finite
NOT_FINITE = -2
