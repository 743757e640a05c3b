#include "halley/server/app/preprocessing_queue.h"

#include <utility>
#include <vector>

namespace halley {

bool PreprocessingQueue::push(PreprocessingLane lane_name, const std::string& client_name,
                              Job job) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_ || num_jobs_ >= num_jobs_max_) return false;
  Lane& lane = lane_of(lane_name);
  Client& client = lane.clients[client_name];
  if (!client.has_turn && client.jobs.empty()) {
    lane.next.push_back(client_name);
    lane.has_next.notify_one();
  }
  client.jobs.push_back(std::move(job));
  ++num_jobs_;
  return true;
}

std::optional<PreprocessingQueue::Turn> PreprocessingQueue::wait_for_turn(
    PreprocessingLane lane_name) {
  Lane& lane = lane_of(lane_name);
  std::unique_lock lock(mutex_);
  lane.has_next.wait(lock, [&] { return is_stopped_ || !lane.next.empty(); });
  if (is_stopped_) return std::nullopt;
  Turn turn;
  turn.client = std::move(lane.next.front());
  lane.next.pop_front();
  Client& client = lane.clients.at(turn.client);
  client.has_turn = true;
  turn.job = std::move(client.jobs.front());
  client.jobs.pop_front();
  --num_jobs_;
  return turn;
}

void PreprocessingQueue::end_turn(PreprocessingLane lane_name, const std::string& client_name) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  Lane& lane = lane_of(lane_name);
  const auto client = lane.clients.find(client_name);
  client->second.has_turn = false;
  if (client->second.jobs.empty()) {
    lane.clients.erase(client);
    return;
  }
  lane.next.push_back(client_name);
  lane.has_next.notify_one();
}

void PreprocessingQueue::stop() {
  std::vector<std::unordered_map<std::string, Client>> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  for (Lane& lane : lanes_) {
    dropped.push_back(std::exchange(lane.clients, {}));
    lane.next.clear();
    lane.has_next.notify_all();
  }
}

}  // namespace halley
