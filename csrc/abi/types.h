/* SPDX-License-Identifier: MIT */
/* The contract's types: what bindings and platforms both include, and all that they share. */
#pragma once

#include "types_hip.h"
#include "types_hip_attributes.h"
#include "types_hipblaslt.h"
#include "types_hiprtc.h"
#include "types_rccl.h"

#include "types_extension.h"
