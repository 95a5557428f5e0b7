// SPDX-License-Identifier: MIT
// Lets a scope of the calling thread give out and free memory while streams are captured: that is part of no graph.
#pragma once

#include "table.hpp"

namespace rocpy {

class CaptureRelaxed {
 public:
  CaptureRelaxed() : changed_(table.hipThreadExchangeStreamCaptureMode(&before_) == hipSuccess) {}
  ~CaptureRelaxed() {
    if (changed_) table.hipThreadExchangeStreamCaptureMode(&before_);
  }
  CaptureRelaxed(const CaptureRelaxed &) = delete;
  CaptureRelaxed &operator=(const CaptureRelaxed &) = delete;

 private:
  hipStreamCaptureMode before_ = hipStreamCaptureModeRelaxed;
  bool changed_;
};

}  // namespace rocpy
