"""`halley serve` whose model several ranks run, and how it ends: by signals, and by ranks that die
or hang.

    serve_ranks_test.py HALLEY_BINARY SOURCE_DIR [unittest arguments]
"""
import contextlib
import os
import signal
import socket
import sys
import time
import unittest

from mpi_processes import ENVIRONMENT, await_ends, has_mpi, ranks_of

HALLEY, SOURCE = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.join(SOURCE, "tests", "serve"))
from served import Background, Server  # noqa: E402

MODEL = os.path.join(SOURCE, "models", "demo-21m")
HAS_MPI = has_mpi(HALLEY)
PROMPTS = ["The Python programming language", "def main(argv):\n", "import os\n", "The tests of"]
# docs/parallel.md: from the death of a rank to the end of the job, without the rank timeout.
SECONDS_TO_THE_END_MAX = 10
DRAINED_TOKENS, ENDLESS_TOKENS = 60, 900


class RankServer(Server):
    """A server of several processes; signals go to rank 0 alone."""

    def __init__(self, num_ranks, *options):
        super().__init__(HALLEY, MODEL, "--log-level", "warning", *options, env=ENVIRONMENT,
                         launcher=("mpirun", "-n", str(num_ranks)))
        self.ranks = ranks_of(self.process.pid)

    def signal(self, number=signal.SIGTERM):
        self.is_signalled = True
        os.kill(self.ranks[0], number)


def completion(server, prompt, max_tokens=12):
    return server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
        "ignore_eos": True})["choices"][0]["text"]


@contextlib.contextmanager
def running_stream(server, max_tokens=ENDLESS_TOKENS):
    """A stream whose first tokens have come: steps run."""
    connection = server.connect()
    connection.request("POST", "/v1/completions", headers={"Content-Type": "application/json"},
                       body=f'{{"prompt": "The", "max_tokens": {max_tokens}, "temperature": 0,'
                            ' "ignore_eos": true, "stream": true}')
    answer = connection.getresponse()
    assert answer.read(1)
    yield answer
    answer.close()
    connection.close()


class Serves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server(HALLEY, MODEL, "--log-level", "warning")
        cls.expected = [completion(server, prompt) for prompt in PROMPTS]
        server.end()

    def check_as_whole(self, server):
        answers = [Background(lambda prompt=prompt: completion(server, prompt))
                   for prompt in PROMPTS]
        self.assertEqual([answer.result() for answer in answers], self.expected)
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        status, _, metrics = server.ask("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertRegex(metrics, r'halley:request_success_total\{[^}]*"length"[^}]*\} 4\n')
        self.assertEqual(server.end(), 0, server.log)

    def test_two_threads_answer_as_one_rank(self):
        self.check_as_whole(Server(HALLEY, MODEL, "--log-level", "warning",
                                   "--tensor-parallel-size", "2"))

    @unittest.skipUnless(HAS_MPI, "needs MPI")
    def test_two_processes_answer_as_one_rank(self):
        self.check_as_whole(RankServer(2))

    def test_two_stages_answer_as_one_rank(self):
        stages = ["--pipeline-parallel-size", "2"]
        self.check_as_whole(Server(HALLEY, MODEL, "--log-level", "warning", *stages))
        if HAS_MPI:
            self.check_as_whole(RankServer(2, *stages))

    def test_threads_drain(self):
        server = Server(HALLEY, MODEL, "--log-level", "warning", "--tensor-parallel-size", "2")
        with running_stream(server, DRAINED_TOKENS) as answer:
            server.signal()
            self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
        self.assertEqual(server.end(), 0, server.log)


@unittest.skipUnless(HAS_MPI, "needs MPI")
class Signals(unittest.TestCase):
    def check_drains(self, send):
        server = RankServer(2)
        with running_stream(server, DRAINED_TOKENS) as answer:
            send(server)
            server.is_signalled = True
            self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
        self.assertEqual(server.end(), 0, server.log)
        await_ends(server.ranks.values())

    def test_sigterm_to_rank_0_drains(self):
        self.check_drains(RankServer.signal)

    def test_sigusr1_to_mpirun_drains(self):
        self.check_drains(lambda server: server.process.send_signal(signal.SIGUSR1))

    def test_sigterm_to_all_ranks_drains(self):
        def send(server):
            for rank in server.ranks.values():
                os.kill(rank, signal.SIGTERM)
        self.check_drains(send)

    def test_a_drain_has_a_limit(self):
        server = RankServer(2, "--shutdown-timeout", "0")
        with running_stream(server) as answer:
            server.signal()
            self.assertIn(b"the request was cancelled", answer.read())
        self.assertEqual(server.end(), 0, server.log)
        await_ends(server.ranks.values())

    def test_sigterm_to_mpirun_leaves_no_process(self):
        server = RankServer(2)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(SECONDS_TO_THE_END_MAX)
        await_ends(server.ranks.values())
        server.is_signalled = True
        server.end()


def await_port(port):
    """A killed process may look dead before the last of its threads has gone, and its sockets."""
    deadline = time.monotonic() + SECONDS_TO_THE_END_MAX
    while True:
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                free.bind(("127.0.0.1", port))
                return
        if time.monotonic() > deadline:
            raise AssertionError(f"port {port} is still in use")
        os.sched_yield()


@unittest.skipUnless(HAS_MPI, "needs MPI")
class DeadRanks(unittest.TestCase):
    def check_ends(self, server, *texts, seconds=0):
        """Within the time, with an error, and with nothing left behind."""
        begin = time.monotonic()
        server.is_signalled = True
        server.process.wait(seconds + SECONDS_TO_THE_END_MAX)
        print(f"{self.id()}: {time.monotonic() - begin:.1f} s", file=sys.stderr)
        self.assertNotEqual(server.end(), 0)
        for text in texts:
            self.assertIn(text, server.log)
        await_ends(server.ranks.values())
        await_port(server.port)

    def test_a_rank_is_killed_in_a_step(self):
        for rank in 0, 1:
            with self.subTest(rank=rank):
                server = RankServer(2)
                with running_stream(server):
                    os.kill(server.ranks[rank], signal.SIGKILL)
                    self.check_ends(server, f"process rank {rank}", "signal 9")

    def test_a_rank_is_killed_while_nothing_runs(self):
        server = RankServer(2)
        os.kill(server.ranks[1], signal.SIGKILL)
        self.check_ends(server, "process rank 1", "signal 9")

    def test_a_rank_hangs(self):
        server = RankServer(2, "--rank-timeout", "2")
        with running_stream(server) as answer:
            os.kill(server.ranks[1], signal.SIGSTOP)
            self.addCleanup(end_stopped, server.ranks[1])
            self.assertIn(b'"error"', answer.read())
            self.check_ends(server, "halley: ", " on rank 0 of 2: rank 1 did not take part within "
                                    "2 s: it has died or hangs", seconds=2)
        self.assertEqual(server.process.returncode, 1)

    def test_mpirun_is_killed(self):
        server = RankServer(2)
        with running_stream(server):
            server.process.kill()
            self.check_ends(server)

    def test_an_idle_server_does_not_end(self):
        server = RankServer(2, "--rank-timeout", "2")
        before = completion(server, PROMPTS[0])
        time.sleep(3)  # there is nothing else to wait for
        self.assertEqual(completion(server, PROMPTS[0]), before)
        self.assertEqual(server.end(), 0, server.log)


def end_stopped(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
