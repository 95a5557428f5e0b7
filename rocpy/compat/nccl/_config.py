# SPDX-License-Identifier: MIT
"""nccl4py's settings: of a communicator, and of a single call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from rocpy.compat.nccl._enums import CTAPolicy, NcclEventSpec, NcclHostCftMode, NcclNvlsHostMode
from rocpy.compat.nccl._errors import CFT, PER_CALL, NcclInvalid, unsupported

# What a setting that RCCL 2.30 does not know may be, because it asks for what holds there anyway.
_AS_IT_IS: dict[str, tuple[Any, ...]] = {
    "graph_stream_ordering": (1,),
    "launch_order_implicit": (0,),
    "num_rma_sig": (1,),
    "rma_eager_init": (0,),
    "host_cft_mode": (NcclHostCftMode.DEFAULT, NcclHostCftMode.DISABLE, NcclHostCftMode.FALLBACK),
}
_SINCE = {"graph_stream_ordering": "2.30.5", "launch_order_implicit": "2.31", "num_rma_sig": "2.31"}


def _check_types(settings: Any) -> None:
    for field in fields(settings):
        value = getattr(settings, field.name)
        wanted: type = str if field.name.endswith(("_name", "_selection")) else int
        if field.name in ("force_alg_selection", "launch_completion_event", "vendor_options"):
            continue
        if value is not None and not isinstance(value, wanted):
            raise NcclInvalid(f"{field.name}: got {value!r}, expected {wanted.__name__} or None")


@dataclass(kw_only=True)
class NCCLConfig:
    """Settings of a communicator; RCCL chooses those that are ``None``.

    rocpy's communicators never block inside RCCL and wait with a deadline, so `blocking` has no effect. Neither has
    `nvls_host_mode`, because AMD GPUs have no NVLink SHARP. Settings that RCCL 2.30 lacks are refused when a
    communicator is created, unless they match its behaviour.

    Examples
    --------
    >>> from rocpy.compat import nccl
    >>> nccl.NCCLConfig(min_ctas=1, cta_policy=nccl.CTAPolicy.ZERO).settings()
    {'min_ctas': 1, 'cta_policy': 2}
    """

    blocking: bool | None = None
    cga_cluster_size: int | None = None
    min_ctas: int | None = None
    max_ctas: int | None = None
    net_name: str | None = None
    split_share: bool | None = None
    traffic_class: int | None = None
    comm_name: str | None = None
    collnet_enable: bool | None = None
    cta_policy: CTAPolicy | None = None
    shrink_share: bool | None = None
    nvls_ctas: int | None = None
    n_channels_per_net_peer: int | None = None
    nvlink_centric_sched: bool | None = None
    graph_usage_mode: int | None = None
    num_rma_ctx: int | None = None
    max_p2p_peers: int | None = None
    graph_stream_ordering: int | None = None
    launch_order_implicit: bool | None = None
    num_rma_sig: int | None = None
    rma_eager_init: bool | None = None
    host_cft_mode: NcclHostCftMode | None = None
    nvls_host_mode: NcclNvlsHostMode | None = None

    def __post_init__(self) -> None:
        _check_types(self)

    def settings(self) -> dict[str, int | str]:
        """Return the settings for RCCL, as the `config` of `rocpy.rccl.Communicator.init`.

        Raises
        ------
        UnsupportedError
            A setting requests something that RCCL 2.30 does not support.
        NcclInvalid
            A setting has the wrong type.
        """
        _check_types(self)  # fields can be assigned
        chosen: dict[str, int | str] = {}
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if value is None or name in ("blocking", "comm_name", "nvls_host_mode"):
                continue
            if name not in _AS_IT_IS:
                chosen[name] = value if isinstance(value, str) else int(value)
            elif value not in _AS_IT_IS[name]:
                reason = CFT if name == "host_cft_mode" else f"RCCL has it from {_SINCE.get(name, '2.31')} on"
                raise unsupported(f"NCCLConfig.{name}={value!r}", reason)
        return chosen


@dataclass(frozen=True)
class VendorOption:
    """An option for one vendor's library: like NCCL, RCCL ignores options of other vendors."""

    vendor_id: int
    option_id: int
    int_value: int | None = None
    str_value: str | None = None
    raw_value: int | None = None

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in ("int_value", "str_value", "raw_value")}
        names = [name for name, value in values.items() if value is not None]
        if len(names) != 1:
            raise NcclInvalid(
                f"VendorOption: got {', '.join(names) or 'no value'}, expected one of {', '.join(values)}"
            )


@dataclass(kw_only=True)
class NCCLCollConfig:
    """Settings of a single collective, which RCCL 2.30 does not support: a call refuses those that are set.

    `vendor_options` and `user_profiler_tag` do not change what a call does, and are accepted.
    """

    min_ctas: int | None = None
    max_ctas: int | None = None
    nvls_ctas: int | None = None
    cga_cluster_size: int | None = None
    alg_selection: str | None = None
    force_alg_selection: bool | None = None
    cta_policy: CTAPolicy | None = None
    user_profiler_tag: int | None = None
    launch_completion_event: NcclEventSpec | None = None
    vendor_options: tuple[VendorOption, ...] = ()

    def __post_init__(self) -> None:
        _check_types(self)
        options = self.vendor_options
        if isinstance(options, str | bytes | VendorOption) or not isinstance(options, Sequence):
            raise NcclInvalid(f"vendor_options: got {type(options).__name__}, expected a sequence of VendorOption")
        for option in options:
            if not isinstance(option, VendorOption):
                raise NcclInvalid(f"vendor_options: got {type(option).__name__} in it, expected VendorOption")
        keys = [(option.vendor_id, option.option_id) for option in options]
        if len(set(keys)) != len(keys):
            raise NcclInvalid("vendor_options: two have the same vendor_id and option_id")


def check_call_config(config: NCCLCollConfig | None) -> None:
    """Refuse settings of a single call.

    Raises
    ------
    UnsupportedError
        One is set.
    NcclInvalid
        `config` has another type.
    """
    if config is None:
        return
    if not isinstance(config, NCCLCollConfig):
        raise NcclInvalid(f"config: got {type(config).__name__}, expected NCCLCollConfig or None")
    config.__post_init__()  # fields can be assigned
    ignored = ("vendor_options", "user_profiler_tag")
    names = [field.name for field in fields(config) if field.name not in ignored]
    names = [name for name in names if getattr(config, name) is not None]
    if names:
        raise unsupported(f"NCCLCollConfig.{names[0]}", PER_CALL)
