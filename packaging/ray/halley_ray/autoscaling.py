"""How many replicas the load needs, by the metrics of `halley serve`."""
import math


class WaitingRequestsPolicy:
    """As a HorizontalPodAutoscaler with two metrics: so many replicas that each has at most
    `target_waiting` requests in its queue, and at most `target_requests` in queue and batch
    together. The second keeps a replica that is busy without a queue. Serve applies the bounds
    and delays of autoscaling_config."""

    def __init__(self, target_waiting=4, target_requests=48):
        for name, value in (("target_waiting", target_waiting),
                            ("target_requests", target_requests)):
            if value <= 0:
                raise ValueError(f"{name}: expected more than 0, got {value}")
        self.target_waiting, self.target_requests = target_waiting, target_requests

    def __call__(self, context):
        waiting = self._sum(context, "num_requests_waiting")
        running = self._sum(context, "num_requests_running")
        if waiting is None or running is None:
            return context.target_num_replicas, {}  # no replica has reported yet
        return max(math.ceil(waiting / self.target_waiting),
                   math.ceil((waiting + running) / self.target_requests)), {}

    @staticmethod
    def _sum(context, name):
        by_replica = (context.aggregated_metrics or {}).get(name)
        return sum(by_replica.values()) if by_replica else None
