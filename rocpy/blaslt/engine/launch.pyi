# SPDX-License-Identifier: MIT
# Python calls nothing of launch.pyx; Cython does.
