// Barriers of a CTA and of a cluster, and the order of dependent grids.
#pragma once

namespace halley::ptx {

/// bar.sync: waits until kThreads threads of the CTA have come to named barrier `barrier` (0 to 15;
/// 0 is that of __syncthreads()), those of bar_arrive() included.
template <int kThreads>
__device__ __forceinline__ void bar_sync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
/// bar.arrive: counts the thread and does not wait.
template <int kThreads>
__device__ __forceinline__ void bar_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

/// The barrier of all threads of a cluster. Arriving releases and waiting acquires what the threads
/// stored, also to shared memory of other CTAs.
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
/// .aligned: all threads of the warp execute the same instruction.
__device__ __forceinline__ void barrier_cluster_arrive_aligned() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void barrier_cluster_wait_aligned() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// .relaxed: releases nothing, so that it does not wait for the thread's other accesses. Mbarriers
/// are published by fence_mbarrier_init().
__device__ __forceinline__ void barrier_cluster_arrive_relaxed_aligned() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

/// The next kernel in the stream may start when all CTAs have called this or exited. Call it late,
/// when the CTA's loads are in flight: CTAs that start earlier wait on some SMs and not on others,
/// and divide their loads unevenly. Without effect if the next kernel was not launched by
/// launch_kernel(), and on GPUs before Hopper, which have no PDL.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/// Every thread of a kernel launched by launch_kernel() calls this before it reads results of
/// earlier kernels and before it writes anything. On return those kernels have completed and their
/// writes are visible.
__device__ __forceinline__ void griddepcontrol_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace halley::ptx
