# SPDX-License-Identifier: MIT
"""What the nouns share: the owner of an object of HIP, what counts as a stream, and what streams still use."""
