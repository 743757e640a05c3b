"""Builds the wheel, installs it into a fresh environment and runs what is in this folder there.

    package_test.py SOURCE_DIR BUILD_DIR BUILD_TYPE [arguments of pytest]

BUILD_DIR is a folder in which the program is built: the wheel takes its objects. Needs the tools of
tools/setup.sh --python; exits with 77 where they are not there. With those of tools/setup.sh
--torch it tests halley.torch too.
"""
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile

SOURCE, BUILD, BUILD_TYPE = sys.argv[1:4]
TOOLS = os.path.join(SOURCE, ".venv", "python")
PYTHON = os.path.join(TOOLS, "bin", "python")
TORCH_PYTHON = os.path.join(SOURCE, ".venv", "torch", "bin", "python")
IMPORT_SECONDS_MAX = 0.3  # of a processor


def run(*command, **options):
    """Ends the test where the command fails."""
    result = subprocess.run(command, check=False, **options)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {result.returncode}")
    return result


def site_packages(python):
    """The folder of its packages."""
    program = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return run(python, "-c", program, capture_output=True, text=True).stdout.strip()


def cached(name):
    """A value of the build's cache, which scikit-build-core empties for another Python."""
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        return re.search(rf"^{name}:\w+=(.*)$", file.read(), re.MULTILINE)[1]


def check_import_time(python, folder):
    """Prints what `import halley` adds to the start of Python; the least of several is its own."""
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def seconds(program):
        start = used()
        run(python, "-c", program, cwd=folder)
        return used() - start
    added = min(seconds("import halley") for _ in range(7)) - min(
        seconds("pass") for _ in range(7))
    print(f"import halley takes {added:.3f} s, at most {IMPORT_SECONDS_MAX}", flush=True)
    if added > IMPORT_SECONDS_MAX:
        sys.exit("import halley takes too long")


def check_source_distribution(folder):
    """`pip install` from an archive has all that the build reads."""
    run(PYTHON, "-c", "import sys; from scikit_build_core.build import build_sdist; "
        "build_sdist(sys.argv[1])", folder, cwd=SOURCE, stdout=subprocess.DEVNULL)
    archive, = (name for name in os.listdir(folder) if name.endswith(".tar.gz"))
    with tarfile.open(os.path.join(folder, archive)) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for part in ("cmake", "python", "src"):
        for path, _, files in os.walk(os.path.join(SOURCE, part)):
            missing = {os.path.relpath(os.path.join(path, name), SOURCE) for name in files
                       if not name.endswith(".pyc")} - names
            if missing:
                sys.exit(f"the source distribution lacks {sorted(missing)}")


def main():
    """The wheel, the environment, the types, the tests."""
    if not os.path.exists(PYTHON):
        print("SKIPPED: no .venv/python; run tools/setup.sh --python")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        run(PYTHON, "-m", "pip", "wheel", SOURCE, "--quiet", "--no-deps", "--no-build-isolation",
            "--disable-pip-version-check", "--wheel-dir", folder,
            "--config-settings", f"build-dir={BUILD}",
            "--config-settings", f"cmake.build-type={BUILD_TYPE}",
            "--config-settings", "cmake.define.HALLEY_BUILD_TESTS=ON",
            "--config-settings", f"cmake.define.HALLEY_CUDA={cached('HALLEY_CUDA')}")
        check_source_distribution(folder)
        wheel, = (name for name in os.listdir(folder) if name.endswith(".whl"))
        fresh = os.path.join(folder, "fresh")
        run(PYTHON, "-m", "venv", fresh)
        python = os.path.join(fresh, "bin", "python")
        run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
            "--disable-pip-version-check", os.path.join(folder, wheel))
        # pytest, mypy and tqdm come from the tools: nothing is downloaded.
        with open(os.path.join(site_packages(python), "tools.pth"), "w", encoding="utf-8") as file:
            file.write(site_packages(PYTHON) + "\n")
            if os.path.exists(TORCH_PYTHON):  # otherwise the tests of halley.torch are skipped
                file.write(site_packages(TORCH_PYTHON) + "\n")
        # Away from the source tree, whose python/halley has no native module.
        tests = os.path.join(folder, "tests")
        shutil.copytree(os.path.join(SOURCE, "tests", "python"), tests)
        examples = [shutil.copy(os.path.join(SOURCE, "examples", name), folder)
                    for name in ("python_generate.py", "python_quantize.py")]
        for what in (["-p", "halley"], examples):
            run(python, "-m", "mypy", "--strict", "--cache-dir", os.path.join(folder, "mypy"),
                "--config-file", os.path.join(SOURCE, "pyproject.toml"), *what, cwd=folder)
        check_import_time(python, folder)
        environment = dict(os.environ, HALLEY_TEST_SOURCE=SOURCE, HALLEY_DEVICE="cpu")
        run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, *sys.argv[4:],
            cwd=folder, env=environment)


if __name__ == "__main__":
    main()
