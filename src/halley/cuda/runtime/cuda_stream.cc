#include "halley/cuda/runtime/cuda_stream.h"

#include "halley/cuda/runtime/cuda_check.h"

namespace halley {

CudaEvent::CudaEvent(Time time) {
  cudaEvent_t event = nullptr;
  const unsigned flags = time == Time::kYes ? cudaEventDefault : cudaEventDisableTiming;
  check_cuda(cudaEventCreateWithFlags(&event, flags), "creation of an event");
  event_.reset(event);
}

void CudaEvent::synchronize() const {
  check_cuda(cudaEventSynchronize(event_.get()), "wait for an event");
}

bool CudaEvent::is_reached() const {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // it is no error of the next launch
    return false;
  }
  check_cuda(status, "query of an event");
  return true;
}

float CudaEvent::milliseconds_since(const CudaEvent& start) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, start.get(), event_.get()),
             "time between two events");
  return milliseconds;
}

CudaStream::CudaStream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creation of a stream");
  stream_.reset(stream);
}

void CudaStream::synchronize() const {
  check_cuda(cudaStreamSynchronize(stream_.get()), "wait for a stream");
}

void CudaStream::record(const CudaEvent& event) const {
  check_cuda(cudaEventRecord(event.get(), stream_.get()), "record of an event");
}

void CudaStream::wait(const CudaEvent& event) const {
  check_cuda(cudaStreamWaitEvent(stream_.get(), event.get(), 0), "order of two streams");
}

}  // namespace halley
