"""A headless Chromium of the machine's own, driven by its chromedriver."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.ports import free_ports

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = (
    "" if BROWSER and DRIVER else "needs chromium and chromedriver (Debian: apt install chromium-driver)"
)

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


@contextmanager
def browser(width: int = 1400, height: int = 900) -> Iterator[Any]:
    """A window, gone at the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for each in (*OPTIONS, f"--window-size={width},{height}"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER, port=free_ports(1)[0]))
    try:
        yield driver
    finally:
        driver.quit()
