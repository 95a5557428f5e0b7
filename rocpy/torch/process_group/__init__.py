# SPDX-License-Identifier: MIT
"""The backend of torch.distributed: a process group whose collectives go to RCCL."""
