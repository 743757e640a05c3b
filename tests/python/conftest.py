"""Marks of the tests in this folder."""


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU")
