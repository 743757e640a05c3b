"""Other programs' builds find the installed engine, in a tree that was moved: by CMake and by
pkg-config.

    sdk_test.py CMAKE BUILD_DIR SOURCE_DIR CXX [unittest arguments]

Builds examples/embedding with nothing but the installed tree, and examples/kernels where the build
has CUDA, on the shared library and on the static one.
"""
import os
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD, SOURCE, CXX = sys.argv[1:5]
MODEL = os.path.join(SOURCE, "models", "demo-21m")
PROMPT = "The Python programming language"
EXAMPLE = os.path.join(SOURCE, "examples", "embedding", "main.cc")
KERNELS = os.path.join(SOURCE, "examples", "kernels")

PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(embedding LANGUAGES CXX)
find_package(halley REQUIRED)
add_executable(embedding "{EXAMPLE}")
target_link_libraries(embedding PRIVATE halley::halley)
if(TARGET halley::kernels)
  find_package(CUDAToolkit REQUIRED)
  foreach(example gemm w4ax)
    add_executable(${{example}} "{KERNELS}/${{example}}.cc")
    target_link_libraries(${{example}} PRIVATE halley::kernels CUDA::cudart)
    add_executable(${{example}}_static "{KERNELS}/${{example}}.cc")
    target_link_libraries(${{example}}_static PRIVATE halley::kernels_static)
  endforeach()
endif()
"""


def run(*command, **environment):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False,
                            env={**os.environ, **environment})
    if result.returncode != 0:
        raise AssertionError(f"{command}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


class Sdk(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        first, cls.tree = (os.path.join(cls.folder, name) for name in ("first", "second"))
        run(CMAKE, "--install", BUILD, "--prefix", first)
        os.rename(first, cls.tree)
        cls.expected = run(os.path.join(cls.tree, "bin", "halley"), "generate", MODEL, "--prompt",
                           PROMPT, "--max-tokens", "24", "--temperature", "0", "--device", "cpu")

    def test_find_package(self):
        project, build = (os.path.join(self.folder, name) for name in ("project", "build"))
        os.mkdir(project)
        with open(os.path.join(project, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT)
        run(CMAKE, "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.tree}",
            f"-DCMAKE_CXX_COMPILER={CXX}")
        run(CMAKE, "--build", build)
        self.assertEqual(run(os.path.join(build, "embedding"), MODEL, PROMPT, "cpu"), self.expected)
        has_kernels = os.path.exists(os.path.join(self.tree, "lib", "libhalley_kernels.so"))
        for name in ("gemm", "gemm_static", "w4ax", "w4ax_static"):
            self.assertEqual(os.path.exists(os.path.join(build, name)), has_kernels, name)
        if has_kernels:
            needed = run("readelf", "-d", os.path.join(build, "w4ax_static"))
            self.assertNotIn("halley", needed)

    def test_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "halley",
                    PKG_CONFIG_PATH=os.path.join(self.tree, "lib", "pkgconfig")).split()
        program = os.path.join(self.folder, "program")
        run(CXX, "-std=c++20", EXAMPLE, *flags, "-o", program)
        text = run(program, MODEL, PROMPT, "cpu",
                   LD_LIBRARY_PATH=os.path.join(self.tree, "lib"))
        self.assertEqual(text, self.expected)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
