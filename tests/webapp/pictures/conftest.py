"""The option of `make pictures`."""


def pytest_addoption(parser) -> None:
    parser.addoption("--accept", action="store_true", help="keep the pictures of this run as the accepted ones")
