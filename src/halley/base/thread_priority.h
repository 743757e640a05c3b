// The share of processor time that a thread gets.
#pragma once

namespace halley {

/// From now on the calling thread gives way to those of normal priority: it has "nice" 10, about a
/// tenth of their share where they want all of it. Without effect where the system has no such
/// thing for threads.
void lower_thread_priority() noexcept;

}  // namespace halley
