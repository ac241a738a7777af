"""fetch.py FOLDER: download and unpack the Debian packages that sources.toml names, each into FOLDER/PACKAGE.

Needs a Debian 12 system (apt-get, dpkg). Writes FOLDER/versions.json.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).parent


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    sources = tomllib.loads((HERE / 'sources.toml').read_text())['source']
    versions = {}
    for package in [p for s in sources if s.get('kind') != 'rust' for p in s['package'].split()]:
        if not list(folder.glob(f'{package}_*.deb')):
            subprocess.run(['apt-get', 'download', package], cwd=folder, check=True)
        deb = next(folder.glob(f'{package}_*.deb'))
        versions[package] = subprocess.check_output(['dpkg-deb', '-f', deb, 'Version'], text=True).strip()
        if not (folder / package).exists():
            subprocess.run(['dpkg', '-x', deb, folder / package], check=True)
    (folder / 'versions.json').write_text(json.dumps(versions, indent=1))


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]))
