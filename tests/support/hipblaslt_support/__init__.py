# SPDX-License-Identifier: MIT
"""What the tests of the host platform's hipBLASLt share: the platform's folder, hip-python on it, products as calls."""
