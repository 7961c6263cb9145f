"""Create the environment of a peer: `python -m benchmarks.peers NAME`."""

import argparse

from benchmarks.peers.environments import FOLDER, make_feast, make_trident

PEERS = {"feast": make_feast, "trident": make_trident}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("name", choices=PEERS)
    name = parser.parse_args().name
    FOLDER.mkdir(parents=True, exist_ok=True)
    PEERS[name]()
    print(f"run it with: python -m benchmarks {name}")


if __name__ == "__main__":
    main()
