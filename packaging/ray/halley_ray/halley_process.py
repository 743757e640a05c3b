"""One `halley serve` as a child process at a free loopback port."""
import asyncio
import re
import subprocess
import sys
import threading

READY_LINE = re.compile(rb"serving \S+ at http://127\.0\.0\.1:(\d+)\n")
TAIL_BYTES = 4096
# Beyond --shutdown-timeout, for answers that are being written and memory that is given back.
STOP_MARGIN_S = 10


class HalleyProcess:
    """Must be made on a thread that lives as long as the process: the kernel kills the child when
    that thread ends, so that a replica which is killed leaves no server on its GPU."""

    def __init__(self, binary, options, shutdown_timeout_s):
        self.shutdown_timeout_s = shutdown_timeout_s
        self.port = 0
        self._stderr_tail = b""
        self._process = subprocess.Popen(  # pylint: disable=consider-using-with
            ["setpriv", "--pdeathsig", "KILL", binary, "serve", *options, "--host", "127.0.0.1",
             "--port", "0", "--shutdown-timeout", str(shutdown_timeout_s)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._copier = threading.Thread(target=self._copy_stderr, daemon=True)
        self._copier.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def exit_code(self):
        """None while it runs."""
        return self._process.poll()

    async def wait_until_ready(self):
        """Returns when requests are taken. Raises RuntimeError where the program ends before."""
        line = await asyncio.to_thread(self._process.stdout.readline)
        match = READY_LINE.fullmatch(line)
        if match:
            self.port = int(match[1])
            return
        self._process.kill()
        code = await asyncio.to_thread(self._process.wait)
        self._copier.join()
        self._process.stdout.close()
        log = self._stderr_tail.decode(errors="replace")
        raise RuntimeError(f"halley serve: expected the line 'serving NAME at URL', got {line!r} "
                           f"and exit code {code}. It wrote: {log}")

    async def stop(self):
        """Drains: running requests have shutdown_timeout_s seconds. Kills what is left then."""
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, self.shutdown_timeout_s + STOP_MARGIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _copy_stderr(self):
        # The log goes to Ray's log of this worker.
        while data := self._process.stderr.read1(65536):
            self._stderr_tail = (self._stderr_tail + data)[-TAIL_BYTES:]
            sys.stderr.write(data.decode(errors="replace"))
            sys.stderr.flush()
        self._process.stderr.close()
