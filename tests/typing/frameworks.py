# SPDX-License-Identifier: MIT
"""What a typed program sees of results with torch and jax: basedpyright reads this file, nothing runs it."""

from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import torch

import rocpy
import rocpy.jax
import rocpy.torch as rt

x = torch.ones(2, 3)
assert_type(rocpy.matmul(x, x.T, epilogue="relu"), torch.Tensor)
assert_type(rocpy.matmul(x, x.T, epilogue="gelu_aux"), tuple[torch.Tensor, dict[str, torch.Tensor]])
assert_type(rocpy.grouped_matmul([x, x], [x, x]), list[torch.Tensor])
assert_type(rocpy.grouped_matmul(x, x, offsets=[1, 2]), torch.Tensor)
assert_type(rocpy.quantize(x), tuple[torch.Tensor, torch.Tensor])
assert_type(rocpy.dequantize(*rocpy.quantize(x)), torch.Tensor)
assert_type(rt.linear(x, x), torch.Tensor)

y = jnp.asarray(np.ones((2, 3)))
assert_type(rocpy.matmul(y, y.T), jax.Array)
assert_type(rocpy.jax.matmul(y, y.T, epilogue="silu"), jax.Array)
assert_type(rocpy.jax.matmul(y, y.T, epilogue="relu_aux"), tuple[jax.Array, dict[str, jax.Array]])

z: npt.NDArray[np.float32] = np.ones((2, 3), np.float32)
assert_type(rocpy.grouped_matmul([z], [z]), list[npt.NDArray[Any]])
assert_type(rocpy.quantize_mx(z), tuple[npt.NDArray[Any], npt.NDArray[Any]])

# Mistakes.
rocpy.jax.matmul(y, y, epilogue="gelu_bais")  # pyright: ignore[reportCallIssue, reportArgumentType]
rocpy.jax.matmul(x, y)  # pyright: ignore[reportCallIssue, reportArgumentType]
rocpy.matmul(x, x.T, epilogue="gelu_aux").sum()  # pyright: ignore[reportAttributeAccessIssue]
rocpy.quantize([1.0])  # pyright: ignore[reportArgumentType]
rocpy.grouped_matmul([x], [x]).sum()  # pyright: ignore[reportAttributeAccessIssue]
