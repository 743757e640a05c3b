"""The Serve application: `import_path: halley_ray.app:build` in a configuration of Serve."""
from pydantic import BaseModel, ConfigDict, Field, field_validator
from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from halley_ray.gateway import Gateway
from halley_ray.halley_process import STOP_MARGIN_S
from halley_ray.replica import HalleyReplica

# Options of `halley serve` that this application gives itself, and its own name for them.
OWN_OPTIONS = {"--host": None, "--port": None, "--device": "num_gpus",
               "--shutdown-timeout": "shutdown_timeout_s", "--api-key-file": "api_key_file",
               "--api-key": "api_key_file", "--max-body-bytes": "body_bytes_max"}


class HalleyArgs(BaseModel):
    """`args` of the application."""
    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="directory of the checkpoint, on every node")
    binary: str = Field("halley", description="the program, on every node")
    options: list[str] = Field([], description="more options of halley serve")
    num_cpus: float = Field(1, gt=0, description="cores of a replica; without a GPU its --threads")
    num_gpus: float = Field(0, ge=0, description="GPUs of a replica; 0: it computes on the CPU")
    shutdown_timeout_s: int = Field(60, ge=0, description="for requests of a replica that stops")
    max_ongoing_requests: int = Field(512, gt=0, description="of a replica, in queue and batch")
    prefix_bytes: int = Field(512, gt=0, description="beginning of a prompt's JSON that decides "
                                                     "which replica is preferred")
    num_attempts: int = Field(2, gt=0, description="replicas that a request may try")
    stream_interval_ms: float = Field(20, ge=0, description="least time between two messages of a "
                                                            "stream")
    api_key_file: str | None = Field(None, description="file with one API key a line")
    body_bytes_max: int = Field(16 << 20, gt=0, description="largest body of a request")

    @field_validator("options")
    @classmethod
    def has_no_own_option(cls, options):
        for option in options:
            name = option.split("=")[0]
            if name in OWN_OPTIONS:
                instead = OWN_OPTIONS[name]
                raise ValueError(f"options: expected none that the application gives itself, got "
                                 f"{name}. " + (f"Use the argument {instead}." if instead else
                                                "Replicas listen at loopback ports alone."))
        return options


def halley_options(args):
    """The options behind `halley serve`."""
    options = [args.model, "--device", "cuda" if args.num_gpus else "cpu", "--max-body-bytes",
               str(args.body_bytes_max)]
    has_threads = any(option.split("=")[0] == "--threads" for option in args.options)
    if not args.num_gpus and not has_threads:
        options += ["--threads", str(max(1, int(args.num_cpus)))]
    if args.api_key_file:
        options += ["--api-key-file", args.api_key_file]
    return options + args.options


def build(args: HalleyArgs) -> Application:
    replicas = serve.deployment(HalleyReplica).options(
        max_ongoing_requests=args.max_ongoing_requests,
        ray_actor_options={"num_cpus": args.num_cpus, "num_gpus": args.num_gpus},
        health_check_period_s=1,
        # Serve waits for the replica's requests, and the replica then for its server.
        graceful_shutdown_wait_loop_s=0.5,
        graceful_shutdown_timeout_s=2 * (args.shutdown_timeout_s + STOP_MARGIN_S),
        request_router_config=RequestRouterConfig(
            request_router_class="halley_ray.routing:PrefixAffinityRouter",
            request_routing_stats_period_s=1))
    gateway = serve.deployment(Gateway).options(
        max_ongoing_requests=65536, ray_actor_options={"num_cpus": 0.1},
        graceful_shutdown_timeout_s=args.shutdown_timeout_s + STOP_MARGIN_S)
    return gateway.bind(
        replicas.bind(args.binary, halley_options(args), args.shutdown_timeout_s,
                      args.api_key_file, args.stream_interval_ms / 1000),
        args.prefix_bytes, args.num_attempts, args.body_bytes_max)
