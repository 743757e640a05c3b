// Ranks that are processes of an MPI job, over host memory.
#pragma once

#include <memory>

#include "halley/parallel/base/communicator.h"

namespace halley {

/// This process's rank in its job; once a process. It and what is split from it are used by one
/// thread at a time, whichever. Throws DeviceError where MPI is not installed, or where it does not
/// see the processes that the launcher has started.
///
/// A rank that dies ends the job by its launcher. One that hangs ends it by the others' timeouts:
/// a process that ends by an error leaves without MPI's farewell, upon which the launcher ends all.
/// The destructor waits for those of the other ranks within the timeout, or ends the job; on the
/// way of an exception it waits for nobody.
std::unique_ptr<Communicator> make_mpi_communicator(
    std::chrono::milliseconds timeout = Communicator::kDefaultTimeout);

/// Ends all processes of the job that this process has joined and not left, this one too, with this
/// exit status and a line on standard error that names the rank. Returns where there is none. A
/// process that ends by an error calls it last: not every launcher ends the others, which would
/// wait.
void abort_mpi_job(int exit_status);

}  // namespace halley
