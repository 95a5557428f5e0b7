// SPDX-License-Identifier: MIT
// HIP rows about errors: the thread's last error, names and descriptions.
#include "hip_call.hpp"

namespace rocpy_host {

namespace {

thread_local hipError_t last_error = hipSuccess;

struct ErrorText {
  hipError_t error;
  const char *name, *description;
};

#define ROCPY_ERROR(error, description) {error, #error, description}
constexpr ErrorText error_texts[] = {
    ROCPY_ERROR(hipSuccess, "no error"),
    ROCPY_ERROR(hipErrorInvalidValue, "an argument is null or out of range"),
    ROCPY_ERROR(hipErrorOutOfMemory, "not enough memory"),
    ROCPY_ERROR(hipErrorNotInitialized, "the runtime is not initialised"),
    ROCPY_ERROR(hipErrorDeinitialized, "the runtime is shutting down"),
    ROCPY_ERROR(hipErrorProfilerDisabled, "the profiler is disabled"),
    ROCPY_ERROR(hipErrorProfilerNotInitialized, "the profiler is not initialised"),
    ROCPY_ERROR(hipErrorProfilerAlreadyStarted, "the profiler is running already"),
    ROCPY_ERROR(hipErrorProfilerAlreadyStopped, "the profiler is stopped already"),
    ROCPY_ERROR(hipErrorInvalidConfiguration, "the launch configuration is out of range"),
    ROCPY_ERROR(hipErrorInvalidPitchValue, "the pitch is smaller than the row, or too large"),
    ROCPY_ERROR(hipErrorInvalidSymbol, "there is no such device symbol"),
    ROCPY_ERROR(hipErrorInvalidDevicePointer, "the pointer is not in a device allocation"),
    ROCPY_ERROR(hipErrorInvalidMemcpyDirection, "there is no such copy direction"),
    ROCPY_ERROR(hipErrorInsufficientDriver, "the driver is older than the runtime needs"),
    ROCPY_ERROR(hipErrorMissingConfiguration, "the kernel call has no configuration"),
    ROCPY_ERROR(hipErrorPriorLaunchFailure, "an earlier launch failed"),
    ROCPY_ERROR(hipErrorInvalidDeviceFunction, "there is no such device function"),
    ROCPY_ERROR(hipErrorNoDevice, "there is no device"),
    ROCPY_ERROR(hipErrorInvalidDevice, "there is no device with this index"),
    ROCPY_ERROR(hipErrorInvalidImage, "this is not a code object"),
    ROCPY_ERROR(hipErrorInvalidContext, "there is no such context"),
    ROCPY_ERROR(hipErrorContextAlreadyCurrent, "the context is current already"),
    ROCPY_ERROR(hipErrorMapFailed, "mapping failed"),
    ROCPY_ERROR(hipErrorUnmapFailed, "unmapping failed"),
    ROCPY_ERROR(hipErrorArrayIsMapped, "the array is mapped"),
    ROCPY_ERROR(hipErrorAlreadyMapped, "the resource is mapped already"),
    ROCPY_ERROR(hipErrorNoBinaryForGpu, "the code object has no code for this device"),
    ROCPY_ERROR(hipErrorAlreadyAcquired, "the resource is acquired already"),
    ROCPY_ERROR(hipErrorNotMapped, "the resource is not mapped"),
    ROCPY_ERROR(hipErrorNotMappedAsArray, "the resource is not mapped as an array"),
    ROCPY_ERROR(hipErrorNotMappedAsPointer, "the resource is not mapped as a pointer"),
    ROCPY_ERROR(hipErrorECCNotCorrectable, "memory failed beyond what ECC corrects"),
    ROCPY_ERROR(hipErrorUnsupportedLimit, "the device has no such limit"),
    ROCPY_ERROR(hipErrorContextAlreadyInUse, "the context is in use by another thread"),
    ROCPY_ERROR(hipErrorPeerAccessUnsupported, "these devices cannot access each other"),
    ROCPY_ERROR(hipErrorInvalidKernelFile, "this is not a kernel file"),
    ROCPY_ERROR(hipErrorInvalidGraphicsContext, "there is no such graphics context"),
    ROCPY_ERROR(hipErrorInvalidSource, "the kernel source is invalid"),
    ROCPY_ERROR(hipErrorFileNotFound, "there is no such file"),
    ROCPY_ERROR(hipErrorSharedObjectSymbolNotFound, "a shared object lacks a symbol"),
    ROCPY_ERROR(hipErrorSharedObjectInitFailed, "a shared object could not be initialised"),
    ROCPY_ERROR(hipErrorOperatingSystem, "the operating system refused a call"),
    ROCPY_ERROR(hipErrorInvalidHandle, "there is no such stream, event, module or function"),
    ROCPY_ERROR(hipErrorIllegalState, "not allowed in the present state"),
    ROCPY_ERROR(hipErrorNotFound, "nothing with this name was found"),
    ROCPY_ERROR(hipErrorNotReady, "the work is not finished yet"),
    ROCPY_ERROR(hipErrorIllegalAddress, "a kernel touched an address that is not its own"),
    ROCPY_ERROR(hipErrorLaunchOutOfResources, "the launch needs more than the device has"),
    ROCPY_ERROR(hipErrorLaunchTimeOut, "the launch took too long and was ended"),
    ROCPY_ERROR(hipErrorPeerAccessAlreadyEnabled, "access to this peer is enabled already"),
    ROCPY_ERROR(hipErrorPeerAccessNotEnabled, "access to this peer is not enabled"),
    ROCPY_ERROR(hipErrorSetOnActiveProcess, "the device is in use and can no longer be configured"),
    ROCPY_ERROR(hipErrorContextIsDestroyed, "the stream, event or context was destroyed or never existed"),
    ROCPY_ERROR(hipErrorAssert, "an assertion in a kernel failed"),
    ROCPY_ERROR(hipErrorHostMemoryAlreadyRegistered, "some of this host memory is registered already"),
    ROCPY_ERROR(hipErrorHostMemoryNotRegistered, "this host memory is not registered"),
    ROCPY_ERROR(hipErrorLaunchFailure, "a launch failed"),
    ROCPY_ERROR(hipErrorCooperativeLaunchTooLarge, "a cooperative launch has more blocks than fit"),
    ROCPY_ERROR(hipErrorNotSupported, "this platform does not support the operation"),
    ROCPY_ERROR(hipErrorStreamCaptureUnsupported, "not allowed while a stream is captured"),
    ROCPY_ERROR(hipErrorStreamCaptureInvalidated, "the capture was invalidated by an earlier error"),
    ROCPY_ERROR(hipErrorStreamCaptureMerge, "the operation would merge two captures"),
    ROCPY_ERROR(hipErrorStreamCaptureUnmatched, "the capture was begun on another stream"),
    ROCPY_ERROR(hipErrorStreamCaptureUnjoined, "the capture has forked work that was not joined"),
    ROCPY_ERROR(hipErrorStreamCaptureIsolation, "captured work would depend on work outside the capture"),
    ROCPY_ERROR(hipErrorStreamCaptureImplicit, "the null stream would depend on a captured stream"),
    ROCPY_ERROR(hipErrorCapturedEvent, "the event was recorded in a capture"),
    ROCPY_ERROR(hipErrorStreamCaptureWrongThread, "the capture was begun by another thread"),
    ROCPY_ERROR(hipErrorGraphExecUpdateFailure, "the graph's change cannot be applied to its instance"),
    ROCPY_ERROR(hipErrorInvalidChannelDescriptor, "the channel descriptor is invalid"),
    ROCPY_ERROR(hipErrorInvalidTexture, "there is no such texture"),
    ROCPY_ERROR(hipErrorInvalidResourceType, "the resource has the wrong type"),
    ROCPY_ERROR(hipErrorInvalidResourceConfiguration, "the resource configuration is invalid"),
    ROCPY_ERROR(hipErrorStreamDetached, "the stream is detached from its device"),
    ROCPY_ERROR(hipErrorUnknown, "unknown error"),
    ROCPY_ERROR(hipErrorRuntimeMemory, "a memory call of the runtime below failed"),
    ROCPY_ERROR(hipErrorRuntimeOther, "a call of the runtime below failed"),
    ROCPY_ERROR(hipErrorInvalidClusterSize, "the cluster size is invalid"),
    ROCPY_ERROR(hipErrorTbd, "an error that has no description yet"),
};
#undef ROCPY_ERROR

const ErrorText *find_text(hipError_t error) {
  for (const ErrorText &text : error_texts) {
    if (text.error == error) {
      return &text;
    }
  }
  return nullptr;
}

}  // namespace

hipError_t remember(hipError_t status) noexcept {
  if (status != hipSuccess && status != hipErrorNotReady) {
    last_error = status;
  }
  return status;
}

}  // namespace rocpy_host

using namespace rocpy_host;

hipError_t rocpy_host_hipGetLastError() {
  const hipError_t error = last_error;
  last_error = hipSuccess;
  return error;
}

hipError_t rocpy_host_hipPeekAtLastError() { return last_error; }

const char *rocpy_host_hipGetErrorName(hipError_t error) {
  const ErrorText *text = find_text(error);
  return text != nullptr ? text->name : "hipErrorUnknown";
}

const char *rocpy_host_hipGetErrorString(hipError_t error) {
  const ErrorText *text = find_text(error);
  return text != nullptr ? text->description : "unknown error";
}
