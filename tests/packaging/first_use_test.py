"""What `make demo`, `make test` and `make install` configure and build, without building it.

    first_use_test.py SOURCE_DIR BUILD_DIR CMAKE [unittest arguments]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, CMAKE = sys.argv[1:4]


class Makefile(unittest.TestCase):
    """The choice between a program for the CPU and one for GPUs too."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def make(self, target, *args, cuda=None):
        """What make would run for the target; `cuda` is in its environment."""
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("CUDA", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        if cuda is not None:
            environment["CUDA"] = cuda
        return subprocess.run(["make", "-n", "-C", SOURCE, "SETUP=:", "BUILD=" + self.folder,
                               target, *args], capture_output=True, text=True, timeout=60,
                              check=False, env=environment)

    def choice(self, *args, **options):
        """The value of HALLEY_CUDA that is given to CMake; None: it keeps what it has."""
        result = self.make(*args, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        configure, = re.findall(r"^cmake --preset release.*$", result.stdout, re.M)
        values = re.findall(r"-DHALLEY_CUDA=(\w+)", configure)
        self.assertLess(len(values), 2, configure)
        return values[0] if values else None

    def configured_with(self, value):
        with open(os.path.join(self.folder, "CMakeCache.txt"), "w", encoding="utf-8") as file:
            file.write(f"HALLEY_CUDA:STRING={value}\n")

    def test_a_first_demo_asks_for_a_gpu_and_the_first_tests_for_a_toolkit(self):
        self.assertEqual([self.choice(target) for target in ("demo", "install", "test")],
                         ["GPU", "GPU", None])  # AUTO is the default of CMakeLists.txt

    def test_a_choice_is_kept_but_tests_compile_what_they_can(self):
        for value in "AUTO", "ON", "OFF":
            self.configured_with(value)
            self.assertEqual([self.choice(target) for target in ("demo", "install", "test")],
                             [None, None, None], value)
        self.configured_with("GPU")
        self.assertEqual([self.choice(target) for target in ("demo", "install", "test")],
                         [None, None, "AUTO"])

    def test_the_variable_decides(self):
        for target in "demo", "install", "test":
            self.configured_with("GPU")
            self.assertEqual((self.choice(target, "CUDA=1"), self.choice(target, "CUDA=0"),
                              self.choice(target, cuda="1")), ("ON", "OFF", "ON"))
            self.assertEqual(self.choice(target, cuda="/usr/local/cuda"), self.choice(target))
        result = self.make("demo", "CUDA=yes")
        self.assertEqual(result.returncode, 2)
        self.assertIn("CUDA: expected 0 or 1, got 'yes'", result.stderr)

    def test_demo_builds_what_install_installs(self):
        for target in "demo", "install":
            self.assertIn("--target installed_files", self.make(target).stdout)


class FindGpu(unittest.TestCase):
    """cmake/halley_find_gpu.cmake, with programs that take the place of nvidia-smi."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def has_gpu(self, smi=None, device="absent"):
        if smi is not None:
            path = os.path.join(self.folder, "nvidia-smi")
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + smi)
            os.chmod(path, 0o755)
        script = os.path.join(self.folder, "script.cmake")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f"""cmake_minimum_required(VERSION 3.25)
list(APPEND CMAKE_PROGRAM_PATH "{self.folder}")
set(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
set(HALLEY_GPU_DEVICE "{os.path.join(self.folder, device)}" CACHE FILEPATH "")
include("{SOURCE}/cmake/halley_find_gpu.cmake")
halley_find_gpu(found)
message("found: ${{found}}")
""")
        result = subprocess.run([CMAKE, "-P", script], capture_output=True, text=True, timeout=60,
                                check=True)
        return re.search(r"found: (\w+)", result.stderr).group(1)

    def test_no_program_and_no_device(self):
        self.assertEqual(self.has_gpu(), "OFF")

    def test_a_device(self):
        with open(os.path.join(self.folder, "nvidia0"), "w", encoding="utf-8"):
            pass
        self.assertEqual(self.has_gpu(device="nvidia0"), "ON")

    def test_nvidia_smi(self):
        self.assertEqual(self.has_gpu("echo 9.0\n"), "ON")
        self.assertEqual(self.has_gpu("echo 8.9; echo 9.0\n"), "ON")
        # GPUs that models do not run on.
        self.assertEqual(self.has_gpu("echo 8.9; echo 12.0\n"), "OFF")
        self.assertEqual(self.has_gpu("echo 'No devices were found'\n"), "OFF")
        # As it does without a driver.
        self.assertEqual(self.has_gpu("echo 'NVIDIA-SMI has failed'\nexit 9\n"), "OFF")


class Install(unittest.TestCase):
    def installed(self):
        """What `cmake --install` demands of the build folder, from CMake's own scripts."""
        with open(os.path.join(BUILD, "cmake_install.cmake"), encoding="utf-8") as file:
            scripts, done = [file.read()], set()
        files = set()
        while scripts:
            # The Python package's component is no part of the whole.
            script = re.sub(r'(?sm)^if\(CMAKE_INSTALL_COMPONENT STREQUAL "python"\)$.*?^endif\(\)$',
                            "", scripts.pop())
            for path in re.findall(r'include\("([^"]+cmake_install\.cmake)"\)', script):
                if path not in done:
                    done.add(path)
                    with open(path, encoding="utf-8") as file:
                        scripts.append(file.read())
            for command in re.findall(r"(?s)file\(INSTALL DESTINATION (.*?)\)\n", script):
                if " OPTIONAL " not in command:
                    names = re.findall(r'"([^"]+)"', command.split(" FILES", 1)[1])
                    files |= {os.path.relpath(name, BUILD) for name in names
                              if name.startswith(BUILD + "/")
                              # what the configuration has written
                              and not name.endswith((".cmake", ".pc"))}
        return files

    @unittest.skipUnless(os.path.exists(os.path.join(BUILD, "build.ninja")) and
                         shutil.which("ninja"), "not built by Ninja")
    def test_the_target_builds_all_that_is_installed(self):
        files = self.installed()
        self.assertIn("bin/halley", files)
        result = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "installed_files"],
                                capture_output=True, text=True, timeout=60, check=True)
        missing = files - set(result.stdout.split())
        self.assertEqual(missing, set(), "name their targets in cmake/halley_install.cmake")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
