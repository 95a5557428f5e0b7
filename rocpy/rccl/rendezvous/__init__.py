# SPDX-License-Identifier: MIT
"""How the processes of a job find each other before they have a communicator."""
