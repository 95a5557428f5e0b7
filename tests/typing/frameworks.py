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
from rocpy import rccl

x = torch.ones(2, 3)
assert_type(rocpy.matmul(x, x.T, epilogue="relu"), torch.Tensor)
assert_type(rocpy.matmul(x, x.T, epilogue="gelu_aux"), tuple[torch.Tensor, dict[str, torch.Tensor]])
assert_type(rocpy.grouped_matmul([x, x], [x, x]), list[torch.Tensor])
assert_type(rocpy.grouped_matmul(x, x, offsets=[1, 2]), torch.Tensor)
assert_type(rocpy.quantize(x), tuple[torch.Tensor, torch.Tensor])
assert_type(rocpy.dequantize(*rocpy.quantize(x)), torch.Tensor)
assert_type(rt.linear(x, x), torch.Tensor)
assert_type(rocpy.Matmul(x, x.T).execute(), torch.Tensor)
assert_type(rocpy.Matmul(x, x.T), rocpy.Matmul[torch.Tensor])
assert_type(rocpy.Matmul(x, x.T, epilogue="gelu_aux").execute(), tuple[torch.Tensor, dict[str, torch.Tensor]])
assert_type(
    rocpy.grouped_matmul([x], [x], epilogue="gelu_aux"), tuple[list[torch.Tensor], dict[str, list[torch.Tensor]]]
)
assert_type(rt.matmul(x, x.T), torch.Tensor)
assert_type(rt.matmul(x, x.T, epilogue=rocpy.Epilogue.RELU_AUX), tuple[torch.Tensor, dict[str, torch.Tensor]])
assert_type(rt.linear(x, x, activation=torch.nn.GELU(approximate="tanh")), torch.Tensor)
assert_type(rt.Linear(3, 2, activation="gelu", approximate="tanh")(x), torch.Tensor)
assert_type(rt.MLP(3, 4)(x), torch.Tensor)
assert_type(rt.GatedMLP(3, 4, torch.relu)(x), torch.Tensor)

# A product of a parameter is a tensor.
parameter = torch.nn.Parameter(x)
assert_type(rocpy.matmul(parameter, x.T), torch.Tensor)
assert_type(rocpy.matmul(parameter, x.T, epilogue="gelu_aux"), tuple[torch.Tensor, dict[str, torch.Tensor]])
assert_type(rocpy.Matmul(parameter, x.T).execute(), torch.Tensor)
assert_type(rt.matmul(parameter, parameter), torch.Tensor)
assert_type(rocpy.quantize(parameter), tuple[torch.Tensor, torch.Tensor])

y = jnp.asarray(np.ones((2, 3)))
assert_type(rocpy.matmul(y, y.T), jax.Array)
assert_type(rocpy.Matmul(y, y.T).execute(), jax.Array)
assert_type(rocpy.Matmul(y, y.T, epilogue="gelu_aux").execute(), tuple[jax.Array, dict[str, jax.Array]])
assert_type(rocpy.grouped_matmul(y, y, offsets=y, epilogue="silu_aux"), tuple[jax.Array, dict[str, jax.Array]])
assert_type(rocpy.jax.matmul(y, y.T, epilogue="silu"), jax.Array)
assert_type(rocpy.jax.matmul(y, y.T, epilogue=rocpy.Epilogue.SILU), jax.Array)
assert_type(rocpy.jax.matmul(y, y.T, epilogue="relu_aux"), tuple[jax.Array, dict[str, jax.Array]])

z: npt.NDArray[np.float32] = np.ones((2, 3), np.float32)
assert_type(rocpy.grouped_matmul([z], [z]), list[npt.NDArray[Any]])
assert_type(rocpy.quantize_mx(z), tuple[npt.NDArray[Any], npt.NDArray[Any]])


def exchange(comm: rccl.Communicator) -> None:
    """Collectives return arrays of the kind that they get."""
    assert_type(comm.all_reduce(x), torch.Tensor)
    assert_type(comm.all_gather(y), jax.Array)
    assert_type(comm.broadcast(x, block=False).wait(), torch.Tensor)


# Mistakes.
rocpy.jax.matmul(y, y, epilogue="gelu_bais")  # pyright: ignore[reportCallIssue, reportArgumentType]
rocpy.jax.matmul(y, y, compute="tf23")  # pyright: ignore[reportCallIssue, reportArgumentType]
rocpy.jax.matmul(y, y, options={"copied": "error"})  # pyright: ignore[reportCallIssue, reportArgumentType]
rocpy.jax.matmul(x, y)  # pyright: ignore[reportCallIssue, reportArgumentType]
rocpy.matmul(x, x.T, epilogue="gelu_aux").sum()  # pyright: ignore[reportAttributeAccessIssue]
rocpy.quantize([1.0])  # pyright: ignore[reportArgumentType]
rocpy.grouped_matmul([x], [x]).sum()  # pyright: ignore[reportAttributeAccessIssue]
rt.matmul(x, x, epilogue="geluu")  # pyright: ignore[reportCallIssue, reportArgumentType]
rt.linear(x, x, activation="geluu")  # pyright: ignore[reportArgumentType]
rt.Linear(3, 2, activation="geluu")  # pyright: ignore[reportArgumentType]
rt.Linear(3, 2, activation="gelu", approximate="tan")  # pyright: ignore[reportArgumentType]
rt.MLP(3, 2, activation="geluu")  # pyright: ignore[reportArgumentType]
rt.GatedMLP(3, 2, activation="geluu")  # pyright: ignore[reportArgumentType]
rocpy.grouped_matmul([x], [x], epilogue="gelu_aux").append(x)  # pyright: ignore[reportAttributeAccessIssue]
rocpy.Matmul(x, x).execute(algorithm=1.5)  # pyright: ignore[reportArgumentType]
rocpy.cooperative.jitt(len)  # pyright: ignore[reportAttributeAccessIssue]
